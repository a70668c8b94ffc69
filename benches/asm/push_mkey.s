    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0xb8
    mov eax,esi
    cmp edx,DWORD PTR [rdi+0x5c]
    jne 0
    cmp DWORD PTR [rdi+0xdc],edx
    jns 21
0:
    cmp QWORD PTR [rdi+0x40],0x0
    jne 7
1:
    lea r12,[rdi+0x90]
    cmp QWORD PTR [rdi+0xa8],0x0
    je 2
    mov rsi,QWORD PTR [rdi+0x38]
    movzx r10d,WORD PTR [rsi+0x80]
    movzx esi,WORD PTR [rsi]
    sub esi,r10d
    movzx r10d,si
    mov esi,DWORD PTR [rdi+0x5c]
    sub esi,r10d
    cmp DWORD PTR [rdi+0xb0],esi
    jns 2
    mov r10,QWORD PTR [rdi+0x38]
    movzx r11d,BYTE PTR [r10+0x115]
    xor r10d,r10d
    test r11b,r11b
    setne r10b
    mov rbx,rdi
    mov rdi,r12
    mov ebp,edx
    mov edx,r10d
    mov r14d,eax
    mov QWORD PTR [rsp+0x38],r12
    mov r12,rcx
    mov r15,r9
    mov r13d,r8d
    call QWORD PTR [_ZN8mlx5_wqe4send7journal7Journal6settle]
    mov r8d,r13d
    mov r9,r15
    mov rcx,r12
    mov r12,QWORD PTR [rsp+0x38]
    mov rdi,rbx
    mov edx,ebp
    mov eax,r14d
2:
    mov QWORD PTR [rsp+0x68],rdi
    mov DWORD PTR [rsp+0x70],eax
    mov DWORD PTR [rsp+0x74],edx
    mov QWORD PTR [rsp+0x78],rcx
    mov BYTE PTR [rsp+0x80],r8b
    mov esi,DWORD PTR [r9]
    cmp esi,0x2
    je 5
    cmp BYTE PTR [r9+0x41],0x2
    jne 5
    test sil,0x1
    jne 5
    mov r15,QWORD PTR [r9+0x18]
    mov rsi,QWORD PTR [r15]
    cmp BYTE PTR [rsi+0x10],0x0
    jne 5
    mov rbp,QWORD PTR [r9+0x10]
    mov r10d,DWORD PTR [rsi+0x134]
    movabs r14,0x7fffffffffffffc
    and r14,rbp
    add r14,0x4
    test bpl,0x3
    cmove r14,rbp
    cmp r10d,0x30
    mov esi,0x30
    cmovb esi,r10d
    test r8b,0x77
    jne 20
    cmp rbp,rsi
    ja 20
    mov rbx,QWORD PTR [r9+0x8]
    movzx r11d,BYTE PTR [r9+0x44]
    movzx r13d,BYTE PTR [r9+0x45]
    mov rsi,QWORD PTR [rdi+0x10]
    mov esi,DWORD PTR [rsi]
    test sil,0x1
    je 20
    cmp BYTE PTR [rdi+0xee],0x0
    jne 20
    mov QWORD PTR [rsp+0x28],rbp
    mov QWORD PTR [rsp+0x18],r15
    lea r15,[r14+0x8]
    lea ebp,[r15+0x3]
    shr ebp,0x2
    mov esi,DWORD PTR [rdi+0x64]
    mov r10d,esi
    and r10d,eax
    neg r10d
    add r10d,esi
    inc r10d
    cmp ebp,r10d
    ja 20
    mov BYTE PTR [rsp+0xf],r11b
    inc esi
    mov r10,QWORD PTR [rdi+0x38]
    movzx r11d,WORD PTR [r10+0x80]
    cmp r11w,dx
    mov QWORD PTR [rsp+0x98],r15
    je 3
    movzx r11d,r11w
    mov r15,QWORD PTR [r10+0x100]
    and r11d,DWORD PTR [r10+0x110]
    shl r11d,0x4
    mov r10,QWORD PTR [r15+r11*1+0x8]
    shr r10,0x28
    mov r11d,eax
    sub r11d,r10d
    movzx r10d,r11w
    xor r11d,r11d
    sub esi,r10d
    cmovb esi,r11d
3:
    mov r10d,DWORD PTR [rdi+0xd8]
    add r10d,ebp
    cmp esi,r10d
    jb 19
    mov BYTE PTR [rsp+0xe],r13b
    mov DWORD PTR [rsp+0x44],ebp
    mov QWORD PTR [rsp+0x38],r12
    mov esi,DWORD PTR [rdi+0x64]
    and esi,eax
    shl rsi,0x6
    add rsi,QWORD PTR [rdi]
    mov QWORD PTR [rsp+0x88],rsi
    add rsi,0x80
    mov r11,QWORD PTR [rsp+0x28]
    cmp r11,0x4
    mov QWORD PTR [rsp+0x90],r14
    jb 8
    xor ebp,ebp
    xor r10d,r10d
4:
    mov r15d,DWORD PTR [rbx+0x8]
    add r10,r15
    mov r12d,DWORD PTR [rbx+0xc]
    shl r12,0x20
    or r12,r15
    rol r12,0x20
    bswap r12
    mov r13,QWORD PTR [rbx]
    bswap r13
    or r15d,ebp
    mov QWORD PTR [rsi],r12
    mov QWORD PTR [rsi+0x8],r13
    mov r12d,DWORD PTR [rbx+0x18]
    mov ebp,r12d
    mov r13d,DWORD PTR [rbx+0x1c]
    shl r13,0x20
    or r13,r12
    rol r13,0x20
    bswap r13
    mov r14,QWORD PTR [rbx+0x10]
    bswap r14
    mov QWORD PTR [rsi+0x10],r13
    mov QWORD PTR [rsi+0x18],r14
    mov r14d,DWORD PTR [rbx+0x28]
    add r12,r14
    add r12,r10
    mov r13d,DWORD PTR [rbx+0x2c]
    shl r13,0x20
    or r13,r14
    mov r10d,r14d
    rol r13,0x20
    bswap r13
    or r10d,ebp
    mov r14,QWORD PTR [rbx+0x20]
    bswap r14
    or r10d,r15d
    mov QWORD PTR [rsi+0x20],r13
    mov QWORD PTR [rsi+0x28],r14
    mov ebp,DWORD PTR [rbx+0x38]
    add r12,rbp
    mov r14d,DWORD PTR [rbx+0x3c]
    shl r14,0x20
    or r14,rbp
    rol r14,0x20
    bswap r14
    mov r15,QWORD PTR [rbx+0x30]
    bswap r15
    or ebp,r10d
    mov QWORD PTR [rsi+0x30],r14
    mov QWORD PTR [rsi+0x38],r15
    add rsi,0x40
    add rbx,0x40
    add r11,0xfffffffffffffffc
    mov r10,r12
    cmp r11,0x3
    ja 4
    jmp 9
5:
    lea rsi,[rsp+0x68]
6:
    mov rdi,r9
    call QWORD PTR [_ZN4mlx56memory4mkey9configure9Configure13configure_any]
7:
    add rsp,0xb8
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
8:
    xor ebp,ebp
    xor r12d,r12d
9:
    test r11,r11
    je 13
    shl r11,0x4
    lea r15,[r11-0x10]
    test r15b,0x10
    jne 10
    mov r10d,DWORD PTR [rbx+0x8]
    add r12,r10
    mov r14d,DWORD PTR [rbx+0xc]
    shl r14,0x20
    or r14,r10
    rol r14,0x20
    bswap r14
    or ebp,r10d
    mov r10,QWORD PTR [rbx]
    bswap r10
    mov QWORD PTR [rsi],r14
    mov QWORD PTR [rsi+0x8],r10
    add rsi,0x10
    lea r10,[rbx+0x10]
    jmp 11
10:
    mov r10,rbx
11:
    test r15,r15
    je 13
    add rbx,r11
12:
    mov r11d,DWORD PTR [r10+0x8]
    add r12,r11
    mov r14d,DWORD PTR [r10+0xc]
    shl r14,0x20
    or r14,r11
    or r11d,ebp
    rol r14,0x20
    bswap r14
    mov r15,QWORD PTR [r10]
    bswap r15
    mov QWORD PTR [rsi],r14
    mov QWORD PTR [rsi+0x8],r15
    mov ebp,DWORD PTR [r10+0x18]
    add r12,rbp
    mov r14d,DWORD PTR [r10+0x1c]
    shl r14,0x20
    or r14,rbp
    or ebp,r11d
    rol r14,0x20
    bswap r14
    mov r11,QWORD PTR [r10+0x10]
    bswap r11
    mov QWORD PTR [rsi+0x10],r14
    mov QWORD PTR [rsi+0x18],r11
    add rsi,0x20
    add r10,0x20
    cmp r10,rbx
    jne 12
13:
    mov r14,QWORD PTR [rsp+0x90]
    mov r10,r14
    sub r10,QWORD PTR [rsp+0x28]
    mov DWORD PTR [rsp+0x24],edx
    je 14
    shl r10,0x4
    mov QWORD PTR [rsp+0x10],rdi
    mov rdi,rsi
    xor esi,esi
    mov rdx,r10
    mov r13d,eax
    mov r15,rcx
    mov QWORD PTR [rsp+0x30],r9
    mov ebx,r8d
    call QWORD PTR [memset@GLIBC_2.2.5]
    mov r8d,ebx
    mov r9,QWORD PTR [rsp+0x30]
    mov rcx,r15
    mov rdi,QWORD PTR [rsp+0x10]
    mov eax,r13d
14:
    test ebp,ebp
    js 19
    mov DWORD PTR [rsp+0x28],eax
    mov rax,QWORD PTR [rsp+0x18]
    mov r13,QWORD PTR [rax]
    movzx ebp,BYTE PTR [r9+0x46]
    movzx ebx,BYTE PTR [r9+0x47]
    mov sil,0x1
    xor eax,eax
    lock cmpxchg BYTE PTR [r13+0x128],sil
    jne 22
    test bpl,bpl
    je 16
15:
    cmp bl,BYTE PTR [r13+0xd4]
    jne 18
16:
    mov DWORD PTR [rsp+0x10],r8d
    mov QWORD PTR [rsp+0x18],rcx
    mov r15,rdi
    mov QWORD PTR [r13+0x98],0x1
    mov QWORD PTR [r13+0xa0],r12
    mov rbp,QWORD PTR [r13+0x110]
    lea rax,[rbp+0x1]
    mov QWORD PTR [r13+0x110],rax
    lea rdi,[r13+0xd8]
    mov QWORD PTR [rsp+0x48],rbp
    mov QWORD PTR [rsp+0x50],0x0
    mov QWORD PTR [rsp+0x58],r12
    lea rsi,[rsp+0x48]
    call _ZN5alloc11collections9vec_deque21VecDeque$LT$T$C$A$GT$13push_back_mut
    movzx ebx,BYTE PTR [r13+0xd4]
    mov BYTE PTR [r13+0x128],0x0
    lock inc QWORD PTR [r13+0x0]
    mov ecx,DWORD PTR [rsp+0x24]
    jle 23
    mov rax,r15
    mov r15d,DWORD PTR [r13+0x130]
    shl r15d,0x8
    or r15d,ebx
    cmp QWORD PTR [rax+0xa8],0x0
    jne 17
    mov DWORD PTR [rax+0xb0],ecx
17:
    mov DWORD PTR [rsp+0x48],ecx
    mov QWORD PTR [rsp+0x50],r13
    lea rcx,[_ZN4core3ptr46drop_in_place$LT$mlx5..memory..mkey..Inner$GT$]
    mov QWORD PTR [rsp+0x58],rcx
    mov QWORD PTR [rsp+0x60],rbp
    lea rsi,[rsp+0x48]
    mov r13,rax
    mov rdi,QWORD PTR [rsp+0x38]
    call _ZN5alloc11collections9vec_deque21VecDeque$LT$T$C$A$GT$13push_back_mut
    mov edx,DWORD PTR [rsp+0x24]
    mov eax,DWORD PTR [rsp+0x10]
    cmp al,0x20
    setb cl
    and cl,BYTE PTR [r13+0xed]
    shl cl,0x5
    or cl,al
    movzx ecx,cl
    shl ecx,0x18
    or ecx,DWORD PTR [r13+0x68]
    mov eax,DWORD PTR [rsp+0x28]
    movzx edi,ax
    shl rdi,0x28
    movabs rsi,0x2500000000
    or rsi,rdi
    bswap r15d
    shl r15,0x20
    mov rdi,QWORD PTR [r13+0x50]
    or rdi,rsi
    or rdi,QWORD PTR [rsp+0x98]
    bswap rdi
    lea r8,[rcx+r15*1]
    mov r10,QWORD PTR [rsp+0x88]
    mov QWORD PTR [r10],rdi
    mov QWORD PTR [r10+0x8],r8
    rol r14w,0x8
    xor edi,edi
    cmp BYTE PTR [rsp+0xf],0x0
    movabs r8,0x1203c2000000000
    movabs r9,0x120002000000000
    cmovne r9,r8
    mov BYTE PTR [r10+0x10],0x80
    mov BYTE PTR [r10+0x13],0x0
    mov WORD PTR [r10+0x11],0x0
    mov WORD PTR [r10+0x14],r14w
    mov WORD PTR [r10+0x16],0x0
    mov QWORD PTR [r10+0x18],r9
    xorps xmm0,xmm0
    movups XMMWORD PTR [r10+0x20],xmm0
    movups XMMWORD PTR [r10+0x30],xmm0
    movzx r8d,BYTE PTR [rsp+0xe]
    cmove r8d,edi
    or ebx,0xffffff00
    bswap ebx
    bswap r12
    mov WORD PTR [r10+0x40],0x0
    mov BYTE PTR [r10+0x42],r8b
    mov BYTE PTR [r10+0x43],0x0
    mov DWORD PTR [r10+0x44],ebx
    movups XMMWORD PTR [r10+0x48],xmm0
    mov QWORD PTR [r10+0x58],r12
    movups XMMWORD PTR [r10+0x60],xmm0
    movups XMMWORD PTR [r10+0x70],xmm0
    mov r9d,DWORD PTR [rsp+0x44]
    or ecx,r9d
    or rcx,rsi
    mov rdi,QWORD PTR [r13+0x8]
    mov r8d,DWORD PTR [r13+0x64]
    and r8d,edx
    shl r8,0x4
    mov rsi,QWORD PTR [rsp+0x18]
    mov QWORD PTR [rdi+r8*1],rsi
    mov QWORD PTR [rdi+r8*1+0x8],rcx
    add eax,r9d
    mov BYTE PTR [r13+0xed],0x1
    mov DWORD PTR [r13+0xdc],edx
    inc edx
    mov ecx,DWORD PTR [r13+0x58]
    lea esi,[rcx-0x1]
    mov DWORD PTR [r13+0x60],esi
    cmp ecx,DWORD PTR [r13+0xe0]
    sete cl
    or BYTE PTR [r13+0xec],cl
    mov DWORD PTR [r13+0xe0],eax
    jmp 7
18:
    mov BYTE PTR [r13+0x128],0x0
19:
    mov rdi,QWORD PTR [rsp+0x68]
    mov eax,DWORD PTR [rsp+0x70]
    mov edx,DWORD PTR [rsp+0x74]
20:
    lea rcx,[rsp+0x78]
    movups xmm0,XMMWORD PTR [rcx]
    movaps XMMWORD PTR [rsp+0xa0],xmm0
    test rdi,rdi
    je 7
    mov QWORD PTR [rsp+0x48],rdi
    mov DWORD PTR [rsp+0x50],eax
    mov DWORD PTR [rsp+0x54],edx
    movaps xmm0,XMMWORD PTR [rsp+0xa0]
    movups XMMWORD PTR [rsp+0x58],xmm0
    lea rsi,[rsp+0x48]
    jmp 6
21:
    mov rbx,rdi
    mov ebp,eax
    mov r12d,edx
    mov r14,rcx
    mov r13,r9
    mov r15d,r8d
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13abort_dropped]
    mov r8d,r15d
    mov r9,r13
    mov rcx,r14
    mov rdi,rbx
    mov edx,r12d
    mov eax,ebp
    cmp QWORD PTR [rdi+0x40],0x0
    jne 7
    jmp 1
22:
    lea rax,[r13+0x58]
    mov QWORD PTR [rsp+0x10],rdi
    mov rdi,rax
    mov QWORD PTR [rsp+0x18],rcx
    mov QWORD PTR [rsp+0x30],r9
    mov r15d,r8d
    call QWORD PTR [_ZN13mlx5_doorbell4lock13Lock$LT$T$GT$4wait]
    mov r8d,r15d
    mov r9,QWORD PTR [rsp+0x30]
    mov rcx,QWORD PTR [rsp+0x18]
    mov rdi,QWORD PTR [rsp+0x10]
    test bpl,bpl
    jne 15
    jmp 16
23:
    ud2
    mov BYTE PTR [r13+0x128],0x0
    mov rdi,rax
    call _Unwind_Resume@plt
