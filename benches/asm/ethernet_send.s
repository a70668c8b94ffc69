    push rbp
    push r15
    push r14
    push r13
    push r12
    push rbx
    sub rsp,0x18
    mov QWORD PTR [rsp+0x8],rcx
    mov r15,rdx
    mov rbx,rdi
    mov QWORD PTR [rsp],0x0
    mov rax,QWORD PTR [rsi+0x90]
    mov eax,DWORD PTR [rax]
    cmp eax,0x1
    jne 1
    mov rax,QWORD PTR [rsi+0x78]
    mov edx,DWORD PTR [rax+0x3c]
    bswap edx
    xor edx,DWORD PTR [rsi+0x158]
    test dl,0xfd
    je 2
    test dl,0x1
    jne 7
    test dl,0xc
    setne cl
    lea edi,[rdx-0x10]
    cmp dil,0x40
    setae dil
    or dil,cl
    jne 12
    mov ecx,DWORD PTR [rax+0x20]
    cmp QWORD PTR [rsi+0x40],rcx
    jne 9
    mov rdi,QWORD PTR [rsi+0x48]
0:
    mov ecx,edx
    shr ecx,0x10
    mov r8,QWORD PTR [rdi+0x190]
    test r8,r8
    je 11
    cmp r8d,0x1
    jne 12
    mov rdi,QWORD PTR [rdi+0x198]
    cmp QWORD PTR [rdi+0x28],rcx
    jbe 12
    mov r8,QWORD PTR [rdi+0x20]
    movzx r9d,BYTE PTR [r8+rcx*1]
    test r9b,r9b
    je 12
    xor r9d,r9d
    xchg BYTE PTR [r8+rcx*1],r9b
    test r9b,r9b
    je 12
    mov r8,QWORD PTR [rdi+0x10]
    mov r8,QWORD PTR [r8+rcx*8]
    mov r8d,edx
    shr r8d,0x16
    mov r9,QWORD PTR [rdi+0x30]
    mov r10d,0x1
    shl r10,cl
    lock or QWORD PTR [r9+r8*8],r10
    mov rcx,QWORD PTR [rdi+0x40]
    mov BYTE PTR [rcx+r8*1],0x1
    mov rcx,QWORD PTR [rdi+0x50]
    shr edx,0x1c
    mov BYTE PTR [rcx+rdx*1],0x1
    add rax,QWORD PTR [rsi+0x50]
    cmp rax,QWORD PTR [rsi+0x88]
    jne 6
    jmp 5
1:
    jmp 13
2:
    mov edi,DWORD PTR [rax+0x20]
    cmp QWORD PTR [rsi+0x30],rdi
    jne 8
    mov rcx,QWORD PTR [rsi+0x38]
    movzx edi,WORD PTR [rcx+0x80]
    movzx r8d,WORD PTR [rcx]
    cmp di,r8w
    je 12
3:
    shr edx,0x10
    movzx r8d,di
    mov r10,QWORD PTR [rcx+0x100]
    and r8d,DWORD PTR [rcx+0x110]
    shl r8d,0x4
    mov r9,QWORD PTR [r10+r8*1+0x8]
    mov r8,QWORD PTR [r10+r8*1]
    shr r9,0x28
    cmp dx,r9w
    jne 10
4:
    inc edi
    mov WORD PTR [rcx+0x80],di
    add rax,QWORD PTR [rsi+0x50]
    cmp rax,QWORD PTR [rsi+0x88]
    jne 6
5:
    xor BYTE PTR [rsi+0x158],0x1
    mov rax,QWORD PTR [rsi+0x80]
6:
    inc QWORD PTR [rsp]
    mov QWORD PTR [rsi+0x78],rax
    mov eax,DWORD PTR [rsi+0x150]
    add eax,DWORD PTR [rsi+0x154]
    mov DWORD PTR [rsi+0x154],eax
    mov rcx,QWORD PTR [rsi+0xa0]
    mov DWORD PTR [rcx+0x2c],eax
    mov rcx,QWORD PTR [rsi+0x98]
    and eax,0xffffff
    bswap eax
    mov DWORD PTR [rcx],eax
    jmp 14
7:
    dec DWORD PTR [rsi+0x168]
    jne 14
    mov rdi,rsi
    call QWORD PTR [_ZN4mlx52cq15CompletionQueue11check_alive]
    jmp 14
8:
    mov rcx,QWORD PTR [rsi+0xa8]
    mov r8d,edi
    bswap r8d
    mov rcx,QWORD PTR [rcx+0x10]
    mov r9d,r8d
    shr r9d,0x9
    and r9d,0x7ff8
    mov r9,QWORD PTR [rcx+r9*1]
    test r9,r9
    je 12
    and r8d,0xfff
    shl r8d,0x4
    mov rcx,QWORD PTR [r9+r8*1+0x8]
    cmp rcx,0x2
    jb 12
    add r9,r8
    mov r8,QWORD PTR [r9]
    cmp DWORD PTR [rsi+0x15c],r8d
    jne 12
    mov r8,QWORD PTR [r9+0x8]
    test rcx,rcx
    je 12
    cmp r8,rcx
    jne 12
    mov QWORD PTR [rsi+0x30],rdi
    mov QWORD PTR [rsi+0x38],rcx
    movzx edi,WORD PTR [rcx+0x80]
    movzx r8d,WORD PTR [rcx]
    cmp di,r8w
    jne 3
    jmp 12
9:
    mov rdi,QWORD PTR [rsi+0xa8]
    mov r9d,ecx
    bswap r9d
    mov rdi,QWORD PTR [rdi+0x10]
    mov r8d,r9d
    shr r8d,0x9
    and r8d,0x7ff8
    mov r8,QWORD PTR [rdi+r8*1]
    test r8,r8
    je 12
    and r9d,0xfff
    shl r9d,0x4
    mov rdi,QWORD PTR [r8+r9*1+0x8]
    cmp rdi,0x2
    jb 12
    add r8,r9
    mov r9,QWORD PTR [r8]
    shr r9,0x20
    cmp DWORD PTR [rsi+0x15c],r9d
    jne 12
    mov r8,QWORD PTR [r8+0x8]
    test rdi,rdi
    je 12
    cmp r8,rdi
    jne 12
    mov QWORD PTR [rsi+0x40],rcx
    mov QWORD PTR [rsi+0x48],rdi
    jmp 0
10:
    mov r8d,edx
    sub r8d,r9d
    movzx r9d,WORD PTR [rcx]
    sub r9d,edi
    cmp r8w,r9w
    jae 12
    add r8d,edi
    mov edi,r8d
    and edi,DWORD PTR [rcx+0x110]
    mov r9,QWORD PTR [rcx+0x100]
    movzx edi,di
    shl edi,0x4
    mov r10,QWORD PTR [r9+rdi*1+0x8]
    mov rdi,QWORD PTR [r9+rdi*1]
    shr r10,0x28
    mov edi,r8d
    cmp dx,r10w
    je 4
    jmp 12
11:
    mov rdx,QWORD PTR [rdi+0x198]
    mov r8d,DWORD PTR [rdx+0x100]
    movzx edi,WORD PTR [rdx+0x80]
    cmp r8d,ecx
    jne 12
    cmp di,cx
    je 12
    mov rdi,QWORD PTR [rdx+0x180]
    mov r8d,DWORD PTR [rdx+0x188]
    dec r8d
    and r8d,ecx
    mov rdi,QWORD PTR [rdi+r8*8]
    inc ecx
    mov DWORD PTR [rdx+0x100],ecx
    add rax,QWORD PTR [rsi+0x50]
    cmp rax,QWORD PTR [rsi+0x88]
    jne 6
    jmp 5
12:
    mov QWORD PTR [rsi+0x78],rax
13:
    xor r12d,r12d
    mov rax,rsp
    mov ecx,0x1
    mov rdi,rsi
    mov rsi,rax
    xor edx,edx
    call QWORD PTR [_ZN4mlx52cq15CompletionQueue9poll_rest]
    test al,0x1
    je 30
14:
    mov ecx,DWORD PTR [rbx+0x58]
    mov ebp,DWORD PTR [rbx+0x5c]
    mov rax,QWORD PTR [rbx+0x10]
    mov eax,DWORD PTR [rax]
    test al,0x1
    jne 15
    lea eax,[rcx-0x1]
    mov DWORD PTR [rbx+0x60],eax
15:
    mov r13d,0x8
    movabs r14,0xa00000003
    mov r11,QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    mov r12,QWORD PTR [rsp+0x8]
    mov edx,ebp
    mov QWORD PTR [rsp+0x10],rcx
    mov esi,ecx
16:
    mov rax,QWORD PTR [r15+r13*1-0x8]
    mov r10,QWORD PTR [r15+r13*1]
    lea ecx,[r10-0x1]
    cmp ecx,DWORD PTR [rbx+0x78]
    jae 18
    cmp DWORD PTR [rbx+0x60],esi
    js 18
    mov ecx,DWORD PTR [rbx+0x64]
    and ecx,esi
    shl rcx,0x6
    add rcx,QWORD PTR [rbx]
    mov DWORD PTR [rcx+0x10],0x0
    mov BYTE PTR [rcx+0x14],0xc0
    rol r10,0x20
    bswap r10
    bswap rax
    mov QWORD PTR [rcx+0x15],0x0
    mov DWORD PTR [rcx+0x1c],0x0
    mov QWORD PTR [rcx+0x20],r10
    mov QWORD PTR [rcx+0x28],rax
    mov eax,DWORD PTR [rbx+0x68]
    movzx edi,si
    shl rdi,0x28
    or rdi,r14
    lea r8,[rax+rdi*1]
    add r8,0xfffffffffffffffe
    add rdi,QWORD PTR [rbx+0x50]
    bswap rdi
    mov QWORD PTR [rcx],rdi
    mov QWORD PTR [rcx+0x8],rax
    mov rax,QWORD PTR [rbx+0x8]
    mov ecx,DWORD PTR [rbx+0x64]
    and ecx,edx
    shl rcx,0x4
    mov QWORD PTR [rax+rcx*1],r12
    mov QWORD PTR [rax+rcx*1+0x8],r8
    inc esi
    inc edx
17:
    add r13,0x10
    inc r12
    cmp r13,0x1f8
    jne 16
    jmp 19
18:
    mov rdi,rbx
    mov rcx,r12
    mov r8d,0x10
    xor r9d,r9d
    push r10
    push rax
    push 0x1
    push 0x0
    call r11
    add rsp,0x20
    mov esi,eax
    mov r11,QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    jmp 17
19:
    mov rax,QWORD PTR [r15+0x1f0]
    mov r10,QWORD PTR [r15+0x1f8]
    lea ecx,[r10-0x1]
    cmp ecx,DWORD PTR [rbx+0x78]
    jae 31
    cmp DWORD PTR [rbx+0x60],esi
    js 31
    mov ecx,DWORD PTR [rbx+0x64]
    and ecx,esi
    shl rcx,0x6
    add rcx,QWORD PTR [rbx]
    mov DWORD PTR [rcx+0x10],0x0
    mov BYTE PTR [rcx+0x14],0xc0
    rol r10,0x20
    bswap r10
    bswap rax
    mov QWORD PTR [rcx+0x15],0x0
    mov DWORD PTR [rcx+0x1c],0x0
    mov QWORD PTR [rcx+0x20],r10
    mov QWORD PTR [rcx+0x28],rax
    movzx eax,si
    shl rax,0x28
    or rax,r14
    lea rdi,[rax+0x7fffffe]
    add rax,QWORD PTR [rbx+0x50]
    bswap rax
    mov QWORD PTR [rcx],rax
    mov QWORD PTR [rcx+0x8],0x8000000
    mov rax,QWORD PTR [rbx+0x8]
    mov r8d,DWORD PTR [rbx+0x64]
    and r8d,edx
    shl r8,0x4
    mov r9,QWORD PTR [rsp+0x8]
    mov QWORD PTR [rax+r8*1],r9
    mov QWORD PTR [rax+r8*1+0x8],rdi
    inc esi
    inc edx
    mov eax,edx
    sub eax,ebp
    cmp eax,0x1
    jne 21
    mov eax,esi
    sub eax,DWORD PTR [rsp+0x10]
    cmp eax,0x1
    jne 22
    cmp DWORD PTR [rbx+0x6c],0x0
    je 20
    mov rax,QWORD PTR [rbx+0x10]
    mov eax,DWORD PTR [rax]
    test al,0x1
    jne 25
20:
    mov rdi,rbx
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_slow]
    test rax,rax
    jne 24
    jmp 29
21:
    mov rdi,rbx
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_many]
    test rax,rax
    jne 24
    jmp 29
22:
    lea edi,[rax-0x1]
    cmp edi,DWORD PTR [rbx+0x6c]
    jae 23
    mov rdi,QWORD PTR [rbx+0x10]
    mov edi,DWORD PTR [rdi]
    test dil,0x1
    jne 26
23:
    mov rdi,rbx
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_slow]
    test rax,rax
    je 29
24:
    xor r12d,r12d
    jmp 30
25:
    mov DWORD PTR [rbx+0x58],esi
    mov DWORD PTR [rbx+0x5c],edx
    mov rax,QWORD PTR [rbx+0x38]
    mov WORD PTR [rax],dx
    mov rax,QWORD PTR [rbx+0x18]
    movzx edx,si
    bswap edx
    mov DWORD PTR [rax+0x4],edx
    sfence
    mov rax,QWORD PTR [rbx+0x20]
    movaps xmm0,XMMWORD PTR [rcx]
    movaps xmm1,XMMWORD PTR [rcx+0x10]
    movaps xmm2,XMMWORD PTR [rcx+0x20]
    movaps xmm3,XMMWORD PTR [rcx+0x30]
    movaps XMMWORD PTR [rax],xmm0
    movaps XMMWORD PTR [rax+0x10],xmm1
    movaps XMMWORD PTR [rax+0x20],xmm2
    movaps XMMWORD PTR [rax+0x30],xmm3
    jmp 28
26:
    mov DWORD PTR [rbx+0x58],esi
    mov DWORD PTR [rbx+0x5c],edx
    mov rdi,QWORD PTR [rbx+0x38]
    mov WORD PTR [rdi],dx
    mov rdx,QWORD PTR [rbx+0x18]
    movzx esi,si
    bswap esi
    mov DWORD PTR [rdx+0x4],esi
    sfence
    mov rdi,QWORD PTR [rbx+0x20]
    cmp eax,0x2
    jne 27
    movaps xmm0,XMMWORD PTR [rcx]
    movaps xmm1,XMMWORD PTR [rcx+0x10]
    movaps xmm2,XMMWORD PTR [rcx+0x20]
    movaps xmm3,XMMWORD PTR [rcx+0x30]
    movaps XMMWORD PTR [rdi],xmm0
    movaps XMMWORD PTR [rdi+0x10],xmm1
    movaps XMMWORD PTR [rdi+0x20],xmm2
    movaps XMMWORD PTR [rdi+0x30],xmm3
    movaps xmm0,XMMWORD PTR [rcx+0x40]
    movaps xmm1,XMMWORD PTR [rcx+0x50]
    movaps xmm2,XMMWORD PTR [rcx+0x60]
    movaps xmm3,XMMWORD PTR [rcx+0x70]
    movaps XMMWORD PTR [rdi+0x40],xmm0
    movaps XMMWORD PTR [rdi+0x50],xmm1
    movaps XMMWORD PTR [rdi+0x60],xmm2
    movaps XMMWORD PTR [rdi+0x70],xmm3
    jmp 28
27:
    mov rsi,rcx
    mov edx,eax
    call QWORD PTR [_ZN13mlx5_doorbell8register11copy_blocks]
28:
    sfence
    mov rax,QWORD PTR [rbx+0x28]
    xor QWORD PTR [rbx+0x20],rax
29:
    mov r12d,0x1
    mov rdx,QWORD PTR [rsp]
30:
    mov rax,r12
    add rsp,0x18
    pop rbx
    pop r12
    pop r13
    pop r14
    pop r15
    pop rbp
    ret
31:
    mov rdi,rbx
    mov rcx,QWORD PTR [rsp+0x8]
    mov r8d,0x18
    xor r9d,r9d
    push r10
    push rax
    push 0x1
    push 0x0
    call QWORD PTR [_ZN8mlx5_wqe4send5build59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$9push_slow]
    add rsp,0x20
    mov rdi,rbx
    mov esi,eax
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13complete_slow]
    test rax,rax
    jne 24
    jmp 29
    jmp 32
32:
    mov r14,rax
    mov rdi,rbx
    call QWORD PTR [_ZN8mlx5_wqe4send4post59_$LT$impl$u20$mlx5_wqe..send..queue..SendQueue$LT$T$GT$$GT$13abort_dropped]
    mov rdi,r14
    call _Unwind_Resume@plt
    call QWORD PTR [_RNvNtCsgEmfK2I1SDS_4core9panicking16panic_in_cleanup]
