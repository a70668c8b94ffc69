    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x98
    mov QWORD PTR [rsp+0x28],rcx
    mov r13,rdx
    mov rbx,rdi
    mov r15d,DWORD PTR [rdi+0x58]
    mov r12d,DWORD PTR [rdi+0x5c]
    mov rax,QWORD PTR [rdi+0x10]
    mov eax,DWORD PTR [rax]
    test al,0x1
    jne 0
    lea eax,[r15-0x1]
    mov DWORD PTR [rbx+0x60],eax
0:
    mov rbp,QWORD PTR [rsi+0x48]
    lea rsi,[rbp+0x10]
    mov r14d,DWORD PTR [rbx+0x64]
    and r14d,r15d
    shl r14,0x6
    add r14,QWORD PTR [rbx]
    mov rax,QWORD PTR [rbx+0x38]
    mov BYTE PTR [rax+0x2],0x1
    mov QWORD PTR [rsp+0x30],rbx
    mov DWORD PTR [rsp+0x38],r15d
    mov DWORD PTR [rsp+0x3c],r12d
    mov rax,QWORD PTR [rsp+0x28]
    mov QWORD PTR [rsp+0x40],rax
    mov BYTE PTR [rsp+0x48],0x8
    cmp QWORD PTR [rbp+0x10],0x0
    je 1
    mov DWORD PTR [rsp],0x0
    lea rdi,[rsp+0x30]
    mov ecx,0x4
    mov rdx,r13
    mov r8d,0x1
    mov r9d,0x38
    call QWORD PTR [_ZN4mlx56memory4mkey9configure14configure_list]
    jmp 4
1:
    mov QWORD PTR [rsp+0x20],rsi
    cmp DWORD PTR [rbp+0x154],0x4
    jb 2
    mov rax,QWORD PTR [rbx+0x10]
    mov eax,DWORD PTR [rax]
    test al,0x1
    jne 8
2:
    lea rax,[rsp+0x40]
    movups xmm0,XMMWORD PTR [rax]
    movaps XMMWORD PTR [rsp+0x60],xmm0
    mov edx,r12d
    mov eax,r15d
    mov rcx,rbx
3:
    mov QWORD PTR [rsp+0x78],rcx
    mov DWORD PTR [rsp+0x80],eax
    mov DWORD PTR [rsp+0x84],edx
    movaps xmm0,XMMWORD PTR [rsp+0x60]
    movups XMMWORD PTR [rsp+0x88],xmm0
    mov DWORD PTR [rsp],0x0
    lea rdi,[rsp+0x78]
    mov ecx,0x4
    mov rsi,QWORD PTR [rsp+0x20]
    mov rdx,r13
    mov r8d,0x1
    mov r9d,0x38
    call QWORD PTR [_ZN4mlx56memory4mkey9configure14configure_list]
4:
    mov ecx,edx
    sub ecx,r12d
    cmp ecx,0x1
    jne 5
    mov ecx,eax
    sub ecx,r15d
    cmp ecx,0x1
    jne 6
    cmp DWORD PTR [rbx+0x6c],0x0
    je 7
    mov rcx,QWORD PTR [rbx+0x10]
    mov ecx,DWORD PTR [rcx]
    test cl,0x1
    je 7
    mov DWORD PTR [rbx+0x58],eax
    mov DWORD PTR [rbx+0x5c],edx
    mov rcx,QWORD PTR [rbx+0x38]
    mov WORD PTR [rcx],dx
    mov rcx,QWORD PTR [rbx+0x18]
    movzx eax,ax
    bswap eax
    mov DWORD PTR [rcx+0x4],eax
    sfence
    mov rax,QWORD PTR [rbx+0x20]
    movaps xmm0,XMMWORD PTR [r14]
    movaps xmm1,XMMWORD PTR [r14+0x10]
    movaps xmm2,XMMWORD PTR [r14+0x20]
    movaps xmm3,XMMWORD PTR [r14+0x30]
    movaps XMMWORD PTR [rax],xmm0
    movaps XMMWORD PTR [rax+0x10],xmm1
    movaps XMMWORD PTR [rax+0x20],xmm2
    movaps XMMWORD PTR [rax+0x30],xmm3
    jmp 19
5:
    mov rdi,rbx
    mov esi,eax
    mov rcx,r14
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_many]
    jmp 20
6:
    lea esi,[rcx-0x1]
    cmp esi,DWORD PTR [rbx+0x6c]
    jae 7
    mov rsi,QWORD PTR [rbx+0x10]
    mov esi,DWORD PTR [rsi]
    test sil,0x1
    jne 16
7:
    mov rdi,rbx
    mov esi,eax
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_slow]
    jmp 20
8:
    cmp r12d,DWORD PTR [rbx+0x5c]
    jne 9
    cmp DWORD PTR [rbx+0xe0],r12d
    jns 21
9:
    mov eax,DWORD PTR [rbx+0xdc]
    sub eax,r15d
    cmp eax,0x3
    jge 10
    mov rdi,rbx
    mov esi,r15d
    mov edx,r12d
    mov ecx,0x3
    call QWORD PTR [_ZN8mlx5_wqe4send4room59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$14find_list_room]
    test al,al
    je 2
10:
    mov esi,DWORD PTR [rbx+0x5c]
    mov rax,QWORD PTR [rbx+0x38]
    movzx eax,WORD PTR [rax+0x80]
    mov ecx,esi
    sub ecx,eax
    movzx eax,cx
    sub esi,eax
    cmp DWORD PTR [rbx+0xb0],esi
    jns 11
    mov rdi,rbx
    call QWORD PTR [_ZN8mlx5_wqe4keys9configure59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13settle_before]
11:
    mov edx,DWORD PTR [rbx+0x64]
    and edx,r15d
    shl rdx,0x6
    add rdx,QWORD PTR [rbx]
    mov rax,QWORD PTR [r13+0x0]
    mov rsi,QWORD PTR [r13+0x8]
    mov rcx,rsi
    rol rcx,0x20
    bswap rcx
    bswap rax
    mov QWORD PTR [rdx+0x80],rcx
    mov QWORD PTR [rdx+0x88],rax
    mov rax,QWORD PTR [r13+0x10]
    mov rdi,QWORD PTR [r13+0x18]
    mov rcx,rdi
    rol rcx,0x20
    bswap rcx
    bswap rax
    mov QWORD PTR [rdx+0x90],rcx
    mov QWORD PTR [rdx+0x98],rax
    mov r8,QWORD PTR [r13+0x28]
    mov rax,r8
    rol rax,0x20
    bswap rax
    mov rcx,QWORD PTR [r13+0x20]
    bswap rcx
    mov QWORD PTR [rdx+0xa0],rax
    mov QWORD PTR [rdx+0xa8],rcx
    mov rax,QWORD PTR [r13+0x30]
    mov r9,QWORD PTR [r13+0x38]
    mov rcx,r9
    rol rcx,0x20
    bswap rcx
    bswap rax
    mov QWORD PTR [rdx+0xb0],rcx
    mov QWORD PTR [rsp+0x58],rdx
    mov QWORD PTR [rdx+0xb8],rax
    mov eax,edi
    or eax,esi
    or eax,r8d
    or eax,r9d
    js 17
    mov cl,0x1
    xor eax,eax
    lock cmpxchg BYTE PTR [rbp+0x148],cl
    jne 22
12:
    mov eax,esi
    mov ecx,edi
    add rcx,rax
    mov eax,r8d
    mov esi,r9d
    add rsi,rax
    add rsi,rcx
    movzx edi,BYTE PTR [rbp+0xd4]
    mov QWORD PTR [rbp+0x98],0x1
    mov QWORD PTR [rbp+0xa0],rsi
    mov r13,QWORD PTR [rbp+0x118]
    lea rax,[r13+0x100]
    mov QWORD PTR [rbp+0x118],rax
    mov rcx,QWORD PTR [rbp+0xf8]
    mov rax,QWORD PTR [rbp+0x108]
    mov rdx,rax
    sub rdx,QWORD PTR [rbp+0x100]
    cmp rdx,rcx
    mov QWORD PTR [rsp+0x10],rsi
    je 23
13:
    or r13,rdi
    mov rdx,QWORD PTR [rbp+0xf0]
    dec rcx
    and rcx,rax
    lea rcx,[rcx+rcx*2]
    mov QWORD PTR [rdx+rcx*8],r13
    mov QWORD PTR [rdx+rcx*8+0x8],0x0
    mov QWORD PTR [rdx+rcx*8+0x10],rsi
    inc rax
    mov QWORD PTR [rbp+0x108],rax
    mov BYTE PTR [rbp+0x148],0x0
    mov ebp,DWORD PTR [rbp+0x150]
    mov rax,QWORD PTR [rbx+0xa8]
    mov rcx,rax
    sub rcx,QWORD PTR [rbx+0xa0]
    jne 14
    mov DWORD PTR [rbx+0xb0],r12d
14:
    mov rdx,QWORD PTR [rbx+0x98]
    cmp rcx,rdx
    je 24
15:
    shl ebp,0x8
    movzx ecx,r13b
    or ecx,ebp
    mov rsi,QWORD PTR [rbx+0x90]
    dec rdx
    and rdx,rax
    shl rdx,0x5
    mov DWORD PTR [rsi+rdx*1],r12d
    mov rdi,QWORD PTR [rsp+0x20]
    mov QWORD PTR [rsi+rdx*1+0x8],rdi
    lea rdi,[_ZN8mlx5_wqe4send7journal11Of$LT$O$GT$4undo]
    mov QWORD PTR [rsi+rdx*1+0x10],rdi
    mov QWORD PTR [rsi+rdx*1+0x18],r13
    inc rax
    mov QWORD PTR [rbx+0xa8],rax
    movzx eax,BYTE PTR [rbx+0xf1]
    shl rax,0x1d
    movzx edx,r15w
    shl rdx,0x28
    bswap ecx
    shl rcx,0x20
    mov rsi,QWORD PTR [rbx+0x50]
    or rsi,rdx
    movabs rdi,0x2500000000
    or rsi,rdi
    or rsi,0xc
    bswap rsi
    add rcx,rax
    add rcx,0x8000000
    mov r8,QWORD PTR [rsp+0x58]
    mov QWORD PTR [r8],rsi
    mov QWORD PTR [r8+0x8],rcx
    movabs rcx,0x40000000080
    mov QWORD PTR [r8+0x10],rcx
    movabs rcx,0x1203c2000000000
    mov QWORD PTR [r8+0x18],rcx
    shl r13,0x38
    movabs rcx,0xffffff00380000
    or rcx,r13
    xorps xmm0,xmm0
    movups XMMWORD PTR [r8+0x20],xmm0
    movups XMMWORD PTR [r8+0x30],xmm0
    mov QWORD PTR [r8+0x40],rcx
    mov rcx,QWORD PTR [rsp+0x10]
    bswap rcx
    movups XMMWORD PTR [r8+0x48],xmm0
    mov QWORD PTR [r8+0x58],rcx
    add rax,rdx
    add rax,0x8000003
    or rax,rdi
    movups XMMWORD PTR [r8+0x60],xmm0
    movups XMMWORD PTR [r8+0x70],xmm0
    mov rcx,QWORD PTR [rbx+0x8]
    mov edx,DWORD PTR [rbx+0x64]
    and edx,r12d
    shl rdx,0x4
    mov rsi,QWORD PTR [rsp+0x28]
    mov QWORD PTR [rcx+rdx*1],rsi
    mov QWORD PTR [rcx+rdx*1+0x8],rax
    lea eax,[r15+0x3]
    lea edx,[r12+0x1]
    mov BYTE PTR [rbx+0xf1],0x1
    mov DWORD PTR [rbx+0xe0],r12d
    mov ecx,DWORD PTR [rbx+0x58]
    lea esi,[rcx-0x1]
    mov DWORD PTR [rbx+0x60],esi
    cmp ecx,DWORD PTR [rbx+0xe4]
    sete cl
    or BYTE PTR [rbx+0xf0],cl
    mov DWORD PTR [rbx+0xe4],eax
    jmp 4
16:
    mov DWORD PTR [rbx+0x58],eax
    mov DWORD PTR [rbx+0x5c],edx
    mov rsi,QWORD PTR [rbx+0x38]
    mov WORD PTR [rsi],dx
    mov rdx,QWORD PTR [rbx+0x18]
    movzx eax,ax
    bswap eax
    mov DWORD PTR [rdx+0x4],eax
    sfence
    mov rdi,QWORD PTR [rbx+0x20]
    cmp ecx,0x2
    jne 18
    movaps xmm0,XMMWORD PTR [r14]
    movaps xmm1,XMMWORD PTR [r14+0x10]
    movaps xmm2,XMMWORD PTR [r14+0x20]
    movaps xmm3,XMMWORD PTR [r14+0x30]
    movaps XMMWORD PTR [rdi],xmm0
    movaps XMMWORD PTR [rdi+0x10],xmm1
    movaps XMMWORD PTR [rdi+0x20],xmm2
    movaps XMMWORD PTR [rdi+0x30],xmm3
    movaps xmm0,XMMWORD PTR [r14+0x40]
    movaps xmm1,XMMWORD PTR [r14+0x50]
    movaps xmm2,XMMWORD PTR [r14+0x60]
    movaps xmm3,XMMWORD PTR [r14+0x70]
    movaps XMMWORD PTR [rdi+0x40],xmm0
    movaps XMMWORD PTR [rdi+0x50],xmm1
    movaps XMMWORD PTR [rdi+0x60],xmm2
    movaps XMMWORD PTR [rdi+0x70],xmm3
    jmp 19
17:
    mov rcx,QWORD PTR [rsp+0x30]
    mov eax,DWORD PTR [rsp+0x38]
    mov edx,DWORD PTR [rsp+0x3c]
    lea rsi,[rsp+0x40]
    movups xmm0,XMMWORD PTR [rsi]
    movaps XMMWORD PTR [rsp+0x60],xmm0
    test rcx,rcx
    jne 3
    jmp 4
18:
    mov rsi,r14
    mov edx,ecx
    call QWORD PTR [_ZN13mlx5_doorbell8register11copy_blocks]
19:
    sfence
    mov rax,QWORD PTR [rbx+0x28]
    xor QWORD PTR [rbx+0x20],rax
    xor eax,eax
20:
    add rsp,0x98
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
21:
    mov rdi,rbx
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13abort_dropped]
    jmp 9
22:
    mov QWORD PTR [rsp+0x10],rdi
    lea rdi,[rbp+0x58]
    mov QWORD PTR [rsp+0x18],rsi
    mov r13,r8
    mov QWORD PTR [rsp+0x50],r9
    call QWORD PTR [_ZN13mlx5_doorbell4lock13Lock$LT$T$GT$4wait]
    mov r9,QWORD PTR [rsp+0x50]
    mov r8,r13
    mov rdi,QWORD PTR [rsp+0x10]
    mov rsi,QWORD PTR [rsp+0x18]
    jmp 12
23:
    mov QWORD PTR [rsp+0x18],rdi
    lea rdi,[rbp+0xf0]
    call QWORD PTR [_ZN8mlx5_wqe4send4fifo13Fifo$LT$T$GT$4grow]
    mov rcx,QWORD PTR [rbp+0xf8]
    mov rax,QWORD PTR [rbp+0x108]
    mov rsi,QWORD PTR [rsp+0x10]
    mov rdi,QWORD PTR [rsp+0x18]
    jmp 13
24:
    lea rdi,[rbx+0x90]
    call QWORD PTR [_ZN8mlx5_wqe4send4fifo13Fifo$LT$T$GT$4grow]
    mov rdx,QWORD PTR [rbx+0x98]
    mov rax,QWORD PTR [rbx+0xa8]
    jmp 15
    mov r14,rax
    mov BYTE PTR [rbp+0x148],0x0
    jmp 25
    mov r14,rax
25:
    mov rdi,rbx
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13abort_dropped]
    mov rdi,r14
    call _Unwind_Resume@plt
    call QWORD PTR [_RNvNtCsgEmfK2I1SDS_4core9panicking16panic_in_cleanup]
